-- What every script ends with: the writes that were gathered, one command for all jobs of the call, then the reply.
--
-- Entries go after the hashes have been written. If a script fails half-way (a key of a foreign type), an entry is left
-- whose job names another one, and whoever meets it drops it.

remove_dropped_entries()
for worker, ids in pairs(let_go) do call('HDEL', key('h:' .. worker), unpack(ids)) end
if #ended > 0 then
  call('ZADD', key('done'), unpack(ended))
  local forgotten = call('ZRANGEBYSCORE', key('done'), '-inf', now, 'LIMIT', 0, 200)
  if #forgotten > 0 then call('ZREM', key('done'), unpack(forgotten)) end
end
if woken > 0 then
  for _ = 1, math.min(woken, 16 - call('LLEN', key('wake'))) do call('RPUSH', key('wake'), '1') end
end
return cmsgpack.pack(reply)
