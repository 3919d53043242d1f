-- One queue in figures, from one look.
--
-- mode: read
-- uses: lanes
-- reply: {queue, ready, running, scheduled, dead, suspects, long, solo, long_tasks, parked, ...}
-- guarantees: G11

-- When the entry that has waited longest in a lane came there, by the clock that never goes back.
local function oldest(lane)
  local group = group_of(lane)
  local after = group and group['last-delivered-id'] or '0-0'
  local entry = call('XRANGE', key('s:' .. lane), '(' .. after, '+', 'COUNT', 1)[1]
  if not entry then return nil end
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'at' then return tonumber(entry[2][i + 1]) end
  end
  return nil
end

local ready, first = 0, nil
for _, lane in ipairs(LANES) do
  local count = waiting(lane)
  if count > 0 then
    ready = ready + count
    local at = oldest(lane)
    if at and (not first or at < first) then first = at end
  end
end

local parked, parked_tasks = 0, {}
for _, need in ipairs(call('SMEMBERS', key('parks'))) do
  local count = call('ZCARD', key('park:' .. need))
  parked = parked + count
  if count > 0 then add(parked_tasks, (string.match(need, '^task:(.*)$'))) end
end
table.sort(parked_tasks)

local running = 0
for _, worker in ipairs(call('ZRANGE', key('w'), 0, -1)) do running = running + call('HLEN', key('h:' .. worker)) end

local function long_tasks()
  read_routes()
  local found = {}
  for task, lane in pairs(declared) do
    if lane == 'long' then add(found, task) end
  end
  for task in pairs(learnt) do
    if not declared[task] then add(found, task) end
  end
  table.sort(found)
  return found
end

local suspects, in_long, in_solo = suspects_waiting(), waiting_apart(LONG), waiting_apart(SOLO)
return {
  queue = queue, ready = ready + in_long + in_solo + suspects + parked, running = running,
  scheduled = call('ZCARD', key('soon')) + call('ZCARD', key('eta')), dead = call('ZCARD', key('dead')),
  suspects = suspects, long = in_long, solo = in_solo, long_tasks = long_tasks(), parked = parked, parked_tasks = parked_tasks, inbox = call('XLEN', key('inbox')),
  workers = call('ZCOUNT', key('w'), 0, '+inf'), paused = call('EXISTS', key('paused')) == 1,
  oldest_ready_ms = first and math.max(0, steady - first) or nil, settled = int(call('HGET', key('n'), 'settled')),
}
