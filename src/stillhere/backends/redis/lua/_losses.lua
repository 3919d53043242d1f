-- What the end of a worker means for a job that it held, and how a worker's record goes.

local MOST_DETAIL = 16000 -- bytes of a stack that are kept
local SETTLED_MARK_MS = 86400000 -- how long the id of a closed worker is remembered against late requests

-- verdict -> the counter it raises, and the side of the lane the job goes to
local CHARGES = {
  culprit = {'losses', 'r'},
  suspect = {'shared', 'm'},
  beside = {'beside', 'm'},
  vanished = {'vanished', 'm'},
  interrupted = {'interruptions', 'r'},
}

local function over_budget(j)
  local budget = int(j.max_losses, 3)
  return int(j.losses) > budget or int(j.shared) > 4 * budget or int(j.vanished) > 10 or int(j.deaths) > 100
end

-- `detail`: where its code was, for its error. Returns what became of it: `returned`, `suspects`, `dead` or `cancelled`.
local function lose(j, verdict, exit, detail)
  local charge = CHARGES[verdict]
  local fields = {}
  if not charge then -- a bystander: nothing is counted; a grant that nobody answered never was a run
    if verdict ~= 'bystander' then error('no such verdict: ' .. verdict, 0) end
    return give_back(j, 'r', nil, fields) and 'returned' or 'cancelled'
  end
  local counter, side = charge[1], charge[2]
  j[counter] = int(j[counter]) + 1
  add(fields, counter, j[counter])
  if verdict == 'interrupted' then
    return give_back(j, side, verdict, add(fields, 'reason', 'interrupted')) and 'returned' or 'cancelled'
  end
  if (verdict == 'vanished' or verdict == 'beside') and j[counter] == 1 then side = 'r' end
  j.deaths = int(j.deaths) + 1
  local message = 'its worker ended while it ran: ' .. exit
  add(fields, 'deaths', j.deaths, 'error', error_text('WorkerLost', message, exit, cut(detail or '', MOST_DETAIL)))
  if over_budget(j) and not j._cancel then
    drop(j._lane, j._entry)
    bury(j, 'lost', fields)
    return 'dead'
  end
  local lane = give_back(j, side, verdict, add(fields, 'reason', 'lost'), exit)
  if not lane then return 'cancelled' end
  return is_suspect(j) and 'suspects' or 'returned'
end

local function forget_tasks(worker)
  for _, need in ipairs(call('SMEMBERS', key('can:' .. worker))) do
    local task = string.match(need, '^task:(.*)$')
    if task and call('HINCRBY', key('known'), task, -1) <= 0 then call('HDEL', key('known'), task) end
  end
end

-- At most `limit` of what it holds, in the order of the grants while the server keeps it (small hashes).
local function held_ids(worker, limit)
  local holds = key('h:' .. worker)
  if call('HLEN', holds) > 2000 then return call('HRANDFIELD', holds, limit) end -- not all of many just for a few
  local ids = call('HKEYS', holds)
  return {unpack(ids, 1, math.min(limit, #ids))}
end

local function remove_worker(worker, reason)
  for _, lane in ipairs(ALL_LANES) do redis.pcall('XGROUP', 'DELCONSUMER', key('s:' .. lane), GROUP, worker) end
  call('DEL', key('w:' .. worker), key('h:' .. worker), key('can:' .. worker), key('ctl:' .. worker))
  call('ZREM', key('w'), worker)
  call('SET', key('gone:' .. worker), reason, 'PX', SETTLED_MARK_MS)
  if call('EXISTS', key('w')) == 0 then call('HDEL', key('clk'), 'gap') end
end
