-- Keep how far a run got, under its token and in the order of its own numbers: a request that hung and runs late must
-- not overwrite its successor. A value that moved wipes the deaths off the account: the job gets on all the same.
--
-- mode: write
-- args: worker job token:int number:int value
-- reply: 'ok', 'older' or 'stale'
-- guarantees: G6 G12

local j = fetch(job, {'state', 'worker', 'token', 'checkpoint', '_ckn'})
if j.state ~= 'running' or j.worker ~= worker or int(j.token) ~= token then return 'stale' end
local of_token, last = string.match(j._ckn or '', '^(%d+) (%d+)$')
if of_token == j.token and number <= tonumber(last) then return 'older' end
call('HSET', key('j:' .. job), 'checkpoint', value, '_ckn', j.token .. ' ' .. number)
if value ~= j.checkpoint then call('HDEL', key('j:' .. job), 'losses', 'shared', 'beside', 'vanished') end
return 'ok'
