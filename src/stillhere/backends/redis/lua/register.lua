-- Open a lease under a worker id that was never used. A late copy finds the record, or the mark of its end.
--
-- mode: write
-- args: worker lease_ms:int tasks:list record_version:int lanes:list declares:flag info:list
-- reply: 'ok', 'exists' or 'gone'
-- guarantees: G3 G4 G12

local me = worker_record(worker)
if me.gone or call('EXISTS', key('gone:' .. worker)) == 1 then return 'gone' end
if me.lease_ms then return 'exists' end

call('HSET', key('w:' .. worker), 'lease_ms', lease_ms, 'cn', 0, 'conf', 0, 'seen', now,
  'info', next(info) and cjson.encode(info) or '', 'version', record_version)
call('ZADD', key('w'), lease + lease_ms, worker)
for i = 1, record_version do call('SADD', key('can:' .. worker), 'v:' .. i) end
for _, task in ipairs(tasks) do
  if call('SADD', key('can:' .. worker), 'task:' .. task) == 1 then call('HINCRBY', key('known'), task, 1) end
end
-- Whoever registers last says in which lane a task belongs: a declaration that was taken back is not believed for ever.
for _, task in ipairs(declares and tasks or {}) do
  if lanes[task] then
    call('HSET', key('lanes'), task, lanes[task])
    set_apart()
  elseif apart then
    call('HDEL', key('lanes'), task)
  end
end
-- The queue's gap follows its shortest lease, so that a step of the server's clock costs no lease more than a tenth.
call('HSET', key('clk'), 'gap', math.max(50, math.min(gap, math.floor(lease_ms / 10))))
return 'ok'
