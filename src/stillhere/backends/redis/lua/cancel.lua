-- Cancel a job: at once when it waits. When it runs, flag it and tell its worker; whichever way that run ends then, the
-- job is cancelled, unless it has succeeded first.
--
-- mode: write
-- uses: lanes ends
-- args: job reason retention_ms:int
-- reply: {changed, state}
-- guarantees: G8 G11

local j = fetch(job, RUN)
if not j.state then return {changed = false} end
if not LIVE[j.state] or j._cancel then return {changed = false, state = j.state} end

reason = reason ~= '' and reason or 'cancelled'
if j.state ~= 'running' then
  withdraw(j)
  finish(j, 'cancelled', reason, {}, retention_ms or int(j.retention_ms, DEFAULT_KEEP_MS))
  return {changed = true, state = 'cancelled'}
end

call('HSET', key('j:' .. job), '_cancel', reason)
if retention_ms then call('HSET', key('j:' .. job), 'retention_ms', retention_ms) end
if call('HEXISTS', key('h:' .. j.worker), job) == 1 then
  call('HSET', key('h:' .. j.worker), job, j.token .. ' ' .. j._cn .. ' c')
  local ear = key('ctl:' .. j.worker)
  if call('LLEN', ear) < 1000 then call('RPUSH', ear, job .. ' ' .. j.token) end -- a hint: the next beat says it again
end
return {changed = true, state = 'running'}
