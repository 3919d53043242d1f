-- Leave a question for the supervisor of a running job. One under an id that is there or was answered is a late copy.
--
-- mode: write
-- uses: asks
-- args: id job
-- reply: whether the job runs
-- guarantees: G12

local j = fetch(job, {'state', 'worker'})
if j.state ~= 'running' then return false end
local there = questions()
for _, asked in ipairs(there) do
  if asked.id == id then return true end
end
if call('EXISTS', key('answer:' .. id)) == 1 then return true end
if #there >= MOST_QUESTIONS then call('HDEL', key('asks'), there[1].id) end
call('HSET', key('asks'), id, whole(steady) .. ' ' .. j.worker .. ' ' .. job)
call('PEXPIRE', key('asks'), ASK_MS)
return true
