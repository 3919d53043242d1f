-- The worker's own voice: renew, compare what it holds with what the store has for it, hear what is cancelled.
--
-- A grant above `answered` may be on its way to the worker: it is left alone. One at or below it that the worker does
-- not hold is lost to it, and ready again. Only pairs of the list that was sent can be reported as lost. One command
-- reads all holdings, so the cost does not grow with a call per job.
--
-- mode: write
-- uses: lanes ends holdings
-- args: worker answered:int held:list lease_ms:int
-- reply: {standing, lost, cancelled, returned}; pairs are {job, token}
-- guarantees: G4 G8 G11 G13

local me = worker_record(worker, 'shown')
if me.gone or not me.lease_ms then return {standing = 'gone', lost = {}, cancelled = {}, returned = {}} end

if lease_ms then -- the holder's own word, and only it: a shorter lease from now on
  me.lease_ms = math.min(me.lease_ms, lease_ms)
  call('ZADD', key('w'), 'XX', lease + me.lease_ms, worker)
else
  call('ZADD', key('w'), 'XX', 'GT', lease + me.lease_ms, worker)
end
me.conf = math.max(me.conf, answered)
call('HSET', key('w:' .. worker), 'lease_ms', me.lease_ms, 'conf', me.conf, 'seen', now)
if me.conf >= me.cn then call('ZREM', key('unconf'), worker) end

local mine, order = holdings(worker)
local lost, cancelled, returned, sent = {}, {}, {}, {}
for _, pair in ipairs(held) do
  local id, token = pair[1], pair[2]
  local grant = mine[id]
  if not grant or grant.token ~= token then
    add(lost, {id, token})
  else
    sent[id] = true
    if grant.cancel then add(cancelled, {id, token}) end
  end
end
for _, id in ipairs(order) do
  local grant = mine[id]
  if not sent[id] and grant.number <= answered then
    local j = fetch(id, RUN)
    if j.state == 'running' and j.worker == worker and int(j.token) == grant.token and give_back(j, 'r', nil, {}) then
      add(returned, id)
    end
    let_go[worker] = add(let_go[worker] or {}, id)
  end
end
if lease - int(me.shown) > me.lease_ms / 2 then show(me, mine) end
return {standing = 'ok', lost = lost, cancelled = cancelled, returned = returned}
