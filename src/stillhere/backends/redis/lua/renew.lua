-- The supervisor's voice: keep a worker alive, and pass on the number of its highest answered claim.
--
-- `hand_back`: the worker's own loop is silent, so what it was granted above that number, before this time of the lease
-- clock, is unseen and goes back now. Late: the lease end never moves backwards, the number only rises, and a grant that
-- was made after the worker woke is younger than the time that the request carries.
--
-- mode: write
-- uses: lanes ends holdings
-- args: worker answered:int hand_back:int
-- reply: {standing, returned, cancelled}
-- guarantees: G4 G11 G13

local me = worker_record(worker)
if me.gone or not me.lease_ms then
  local closed = me.gone or call('EXISTS', key('gone:' .. worker)) == 1
  return {standing = closed and 'gone' or 'unknown', returned = {}, cancelled = {}}
end
call('ZADD', key('w'), 'XX', 'GT', lease + me.lease_ms, worker)
me.conf = math.max(me.conf, answered)
call('HSET', key('w:' .. worker), 'conf', me.conf, 'seen', now)
local unseen = me.granted < hand_back
local returned = unseen and take_back(me) or {}
if unseen or me.conf >= me.cn then call('ZREM', key('unconf'), worker) end

-- A silent worker cannot hear of cancels: whoever speaks for it is told.
local cancelled = {}
if hand_back > 0 then
  for id, held in pairs((holdings(worker))) do
    if held.cancel then add(cancelled, {id, held.token}) end
  end
end
return {standing = 'ok', returned = returned, cancelled = cancelled}
