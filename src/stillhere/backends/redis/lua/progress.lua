-- Keep what runs say of themselves, each under its token and in the order of its own numbers; the time is the store's.
--
-- mode: write
-- args: worker items:list
-- reply: for each item 'ok', 'older' or 'stale'
-- guarantees: G6 G12

local function tell(item)
  local j = fetch(item.job, {'state', 'worker', 'token', '_prn'})
  if j.state ~= 'running' or j.worker ~= worker or int(j.token) ~= item.token then return 'stale' end
  local of_token, last = string.match(j._prn or '', '^(%d+) (%d+)$')
  if of_token == j.token and item.number <= tonumber(last) then return 'older' end
  local open = string.gsub(item.value, '%s*}%s*$', '')
  local comma = string.find(open, '^%s*{%s*$') and '' or ','
  call('HSET', key('j:' .. item.job), 'progress', open .. comma .. '"at":' .. whole(now) .. '}',
    '_prn', j.token .. ' ' .. item.number)
  return 'ok'
end

local answers = {}
for i, item in ipairs(items) do answers[i] = tell(item) end
return answers
