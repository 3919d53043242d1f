-- What a worker holds: a hash beside its record, job id -> "token number [c]", `c` once a cancel was asked for.

-- The holdings by id, and the ids in the order of the grants while the server keeps it (small hashes).
local function holdings(worker)
  local flat = call('HGETALL', key('h:' .. worker))
  local found, order = {}, {}
  for i = 1, #flat, 2 do
    local token, number, cancel = string.match(flat[i + 1], '^(%d+) (%d+)(.*)$')
    add(order, flat[i])
    found[flat[i]] = {token = tonumber(token), number = tonumber(number), cancel = cancel == ' c'}
  end
  return found, order
end

-- Keep the group's own lists true for people and foreign tools: claim the worker's entries in its own name, which sets
-- their idle time back and leaves the delivery count. Twice a lease, by its own voice, and only while it holds few.
local function show(me, mine)
  call('HSET', key('w:' .. me.id), 'shown', lease)
  if call('HLEN', key('h:' .. me.id)) > 200 then return end
  local by_lane = {}
  for id in pairs(mine) do
    local j = fetch(id, {'worker', '_lane', '_entry'})
    if j.worker == me.id and j._entry then by_lane[j._lane] = add(by_lane[j._lane] or {}, j._entry) end
  end
  for lane, entries in pairs(by_lane) do
    redis.pcall('XCLAIM', key('s:' .. lane), GROUP, me.id, 0, unpack(add(entries, 'JUSTID')))
  end
end
