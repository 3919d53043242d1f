-- Close a worker id for ever and make its jobs ready, at most `limit` a call.
--
-- The mark comes first: from then on claims and renewals under this id are refused, so its holdings only shrink, and
-- anybody can go on where this caller died. The first reason and the first default verdict stay. The record goes in the
-- call that finds nothing left, and a mark outlives it for late copies of old requests.
--
-- mode: write
-- uses: lanes ends losses orphans
-- args: worker reason force:flag default verdicts:list details:list limit:int
-- reply: {status, returned, suspects, dead, cancelled}
-- guarantees: G7 G11 G14

local answer = {status = 'unknown', returned = {}, suspects = {}, dead = {}, cancelled = {}}
local me = worker_record(worker, 'verdict')
if not me.lease_ms then return answer end
if not force and not me.gone and lease < int(call('ZSCORE', key('w'), worker)) then
  answer.status = 'alive'
  return answer
end

if not me.gone then
  me.gone, me.verdict = reason ~= '' and reason or 'ended', default
  call('HSET', key('w:' .. worker), 'gone', me.gone, 'verdict', default)
  call('ZADD', key('w'), -1, worker)
  call('ZREM', key('unconf'), worker)
  forget_tasks(worker)
end

limit = math.min(limit, 1000)
local ids = held_ids(worker, limit)
for _, id in ipairs(ids) do
  local j = fetch(id, RUN)
  if j.state == 'running' and j.worker == worker then
    local verdict = int(j._cn) > me.conf and 'bystander' or verdicts[id] or me.verdict
    local became = lose(j, verdict, me.gone, details[id])
    add(answer[became], id)
  end
end
if #ids > 0 then call('HDEL', key('h:' .. worker), unpack(ids)) end

answer.status = 'more'
if call('EXISTS', key('h:' .. worker)) == 0 and mend_orphans(worker, limit) == 0 then
  remove_worker(worker, me.gone)
  answer.status = 'ended'
end
return answer
