-- Make a job that waits for its time ready now, or a dead letter ready again with fresh budgets.
--
-- A dead letter stays one if it never was a job (`undecodable`), or if its unique key belongs to another job by now.
--
-- mode: write
-- uses: lanes ends
-- args: job
-- reply: {changed, state}; the state is the one before
-- guarantees: G1 G9 G11

-- Why the worker of a dead letter died, if that made it one.
local function exit_of(dead)
  local read, found = pcall(cjson.decode, dead.reason == 'lost' and dead.error or '')
  return read and type(found) == 'table' and type(found.exit) == 'string' and found.exit ~= '' and found.exit or nil
end

local j = fetch(job, add({'reason', 'ended', 'error'}, unpack(RUN)))
local before = j.state
if before == 'scheduled' then
  withdraw(j)
  put(j, 'm', {})
  return {changed = true, state = before}
end
if before ~= 'dead' or j.reason == 'undecodable' then return {changed = false, state = before} end

if j.unique then
  local unique = unique_key(j.task, j.unique)
  local holder, till = holder_of(unique)
  if holder and holder ~= job and (till > now or LIVE[fetch(holder, {'state'}).state]) then
    return {changed = false, state = before}
  end
  call('SET', unique, (j.unique_until or '') .. ' ' .. job)
end
call('ZREM', key('dead'), job)
call('PERSIST', key('j:' .. job)) -- or it would vanish while it runs
local fields = j.worker and {'runs', ran(j, 'dead', int(j.ended), exit_of(j))} or {}
call('HDEL', key('j:' .. job), 'failures', 'losses', 'shared', 'beside', 'vanished', 'reason', 'ended', 'worker')
put({id = job, priority = j.priority, task = j.task, lane = j.lane}, 'm', fields)
return {changed = true, state = before}
