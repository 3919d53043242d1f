-- Grant ready jobs to a worker. Nothing else grants: a job runs only under a token that was written here.
--
-- Claims are numbered. The same number again gives the same grants (the reply may have been lost), a lower one is a
-- late copy and gets nothing, and number n says that n - 1 has been answered. So at most one claim of a worker is
-- unanswered, and its grants stand in the worker's record.
--
-- On its way it takes in what came through the inbox, what is due, and what waited for a worker like this one: at most
-- 100 each, so a call stays short whatever has gathered.
--
-- A job belongs in the lane of its task, and what is said of a task changes while its jobs wait. So nobody searches the
-- lanes for what should be elsewhere: the claim that meets such a job moves it.
--
-- mode: write
-- uses: lanes ends insert inbox parks record grant
-- args: worker n:int slots:int long:int lanes seated:list
-- reply: {standing, jobs, more, next_due_ms, paused, dropped}
-- guarantees: G2 G7 G9 G10 G11

local me = worker_record(worker, 'version', 'turn', 'long_turn')
if me.gone or not me.lease_ms then return {standing = 'gone'} end
if lease >= int(call('ZSCORE', key('w'), worker)) then return {standing = 'over'} end
if n < me.cn then return {standing = 'old'} end

local jobs, dropped = {}, {}
slots = math.min(slots, 1000)
local paused = call('EXISTS', key('paused')) == 1
if n == me.cn then
  for id in string.gmatch(me.last, '%S+') do
    local j = fetch_all(id)
    if j.state == 'running' and j.worker == worker and int(j._cn) == n then add(jobs, grant_of(j)) end
  end
  return {standing = 'ok', jobs = jobs, next_due_ms = next_due(), paused = paused}
end

local turn, long_turn = int(me.turn) + (slots > 0 and 1 or 0), int(me.long_turn) + (long > 0 and 1 or 0)
local more = false
local ids, holds = {}, {}
if not paused then
  take_in(dropped)
  promote('soon', steady)
  promote('eta', now)
  unpark(worker)
  if lanes ~= 'pool' then deal(SUSPECTS, math.min(1, slots), turn, jobs, dropped) end
  if lanes == 'solo' then
    if apart and #jobs == 0 then deal(SOLO, math.min(1, slots), turn, jobs, dropped) end
  elseif #jobs == 0 then
    deal(LANES, slots, turn, jobs, dropped)
    local slow, before = {}, moved
    if apart and long > 0 then long = math.max(0, math.min(long, 1000) - long_ones(seated)) end
    if apart and long > 0 then deal(LONG, long, long_turn, slow, dropped) end
    if moved > before then deal(LANES, slots, turn, jobs, dropped) end -- some that are not long any more went to the pool
    more = is_short(LANES, slots, jobs) or apart and is_short(LONG, long, slow)
    add(jobs, unpack(slow))
  end
end

for _, granted in ipairs(jobs) do
  add(ids, granted.id)
  add(holds, granted.id, whole(granted.token) .. ' ' .. n)
end
me.conf = math.max(me.conf, n - 1)
call('HSET', key('w:' .. worker), 'cn', n, 'conf', me.conf, 'last', table.concat(ids, ' '), 'granted', lease,
  'seen', now, 'turn', turn, 'long_turn', long_turn)
if #holds > 0 then
  call('HSET', key('h:' .. worker), unpack(holds))
  call('ZADD', key('unconf'), lease + me.lease_ms, worker)
else
  call('ZREM', key('unconf'), worker)
end
woken = moved + (more and 1 or 0) -- what became ready is in this worker's hands, but for what it does not take
return {standing = 'ok', jobs = jobs, more = more, next_due_ms = next_due(), paused = paused, dropped = dropped}
