-- Remove a dead letter for good.
--
-- mode: write
-- uses: lanes ends
-- args: job
-- reply: whether it was a dead letter
-- guarantees: G11

local j = fetch(job, {'state', 'task', 'unique'})
if j.state ~= 'dead' then return false end
if j.unique and holder_of(unique_key(j.task, j.unique)) == job then call('DEL', unique_key(j.task, j.unique)) end
call('ZREM', key('dead'), job)
call('DEL', key('j:' .. job))
return true
