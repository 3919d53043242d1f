-- The registered workers of a queue.
--
-- mode: read
-- args: limit:int
-- reply: for each {id, queue, lease_ms, left_ms, seen, answered, holds, gone, info, tasks}
-- guarantees: G3

local rows = {}
local flat = call('ZRANGE', key('w'), 0, limit - 1, 'WITHSCORES')
for i = 1, #flat, 2 do
  local me = worker_record(flat[i], 'seen', 'info')
  local tasks = {}
  for _, need in ipairs(call('SMEMBERS', key('can:' .. me.id))) do add(tasks, (string.match(need, '^task:(.*)$'))) end
  table.sort(tasks)
  add(rows, {
    id = me.id, queue = queue, lease_ms = me.lease_ms or 0, left_ms = math.floor(flat[i + 1] - lease),
    seen = int(me.seen), answered = me.conf, holds = call('HLEN', key('h:' .. me.id)), gone = me.gone,
    info = me.info and me.info ~= '' and cjson.decode(me.info) or nil, tasks = tasks,
  })
end
return rows
