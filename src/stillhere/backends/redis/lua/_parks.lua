-- Jobs that no worker present can run are set aside, by what they need, until one comes that can: no hot loop.

local can = {}

local function has_need(need)
  if can[need] == nil then can[need] = call('SISMEMBER', key('can:' .. worker), need) == 1 end
  return can[need]
end

local function missing_need(j)
  local version = 'v:' .. int(j.v, 1)
  if not has_need(version) then return version end
  local task = 'task:' .. j.task
  return not has_need(task) and task or nil
end

local function park(j, need)
  local reason = string.sub(need, 1, 2) == 'v:' and 'newer_record' or 'unknown_task'
  local place = 'park:' .. need
  call('HSET', key('j:' .. j.id), 'reason', reason, '_lane', place)
  call('HDEL', key('j:' .. j.id), '_entry')
  call('ZADD', key(place), steady, j.id)
  call('SADD', key('parks'), need)
end

-- Bring back, in front, what waited for the likes of this worker.
local function unpark(worker)
  local left = 100
  local needs = call('SINTER', key('parks'), key('can:' .. worker))
  table.sort(needs)
  for _, need in ipairs(needs) do
    local place = key('park:' .. need)
    local ids = left > 0 and call('ZRANGE', place, 0, left - 1) or {}
    for _, id in ipairs(ids) do
      local j = fetch(id, add({'state'}, unpack(ROUTED)))
      if j.state == 'ready' then
        put(j, 'r', {})
        call('HDEL', key('j:' .. id), 'reason')
      end
    end
    if #ids > 0 then call('ZREM', place, unpack(ids)) end
    if call('EXISTS', place) == 0 then call('SREM', key('parks'), need) end
    left = left - #ids
  end
end
