-- Add jobs. The id decides whether a job is new, so a repeat after a lost reply adds nothing.
--
-- Refused as a whole, before the first write, when the server has no memory left.
--
-- mode: admit
-- uses: lanes ends insert
-- args: jobs:list
-- reply: for each job {id, created, state, conflict, known}
-- guarantees: G1 G9 G10

local answers = {}
for i, new in ipairs(jobs) do answers[i] = insert(new) end
return answers
