-- Find the leases that are over, and take back grants that nobody has answered for a whole lease.
--
-- Workers stand in a set ordered by their lease's end, so the dead come first however many live ones there are. It ends
-- nobody: the caller does, one bounded call after the other, and whoever sweeps next goes on if that caller dies.
--
-- mode: write
-- uses: lanes ends orphans strangers
-- args: limit:int
-- reply: {over, returned, suspects}
-- guarantees: G3 G7 G11 G14

local over = call('ZRANGEBYSCORE', key('w'), '-inf', lease, 'LIMIT', 0, limit)

local returned = {}
for _, worker in ipairs(call('ZRANGEBYSCORE', key('unconf'), '-inf', lease, 'LIMIT', 0, limit)) do
  local me = worker_record(worker)
  if me.lease_ms and not me.gone then add(returned, unpack(take_back(me))) end
  call('ZREM', key('unconf'), worker)
end

local forgotten = call('ZRANGEBYSCORE', key('dead'), '-inf', now - DEAD_KEEP_MS, 'LIMIT', 0, 200)
if #forgotten > 0 then call('ZREM', key('dead'), unpack(forgotten)) end
if call('HINCRBY', key('n'), 'sweeps', 1) % 10 == 0 then
  mend_note()
  mend_strangers(limit)
end

return {over = over, returned = returned, suspects = suspects_waiting()}
