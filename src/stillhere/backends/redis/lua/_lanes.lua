-- Where jobs wait: two streams a priority (what was running before stands in front of what is new), in the pool's lane,
-- the long and the solo one; and the suspects' two.
--
-- A stream entry is only an index: it names a job, and it counts only as long as the job's hash names it back.

local LANES = {'0:r', '0:m', '5:r', '5:m', '9:r', '9:m'}
local LONG, SOLO = {}, {}
for i, lane in ipairs(LANES) do LONG[i], SOLO[i] = 'long:' .. lane, 'solo:' .. lane end
local SUSPECTS = {'sus:r', 'sus'}
local ALL_LANES = {}
for _, lanes_of_one in ipairs({LANES, LONG, SOLO, SUSPECTS}) do add(ALL_LANES, unpack(lanes_of_one)) end

-- What must have been read of a job to know its lane.
local ROUTED = {'priority', 'task', 'lane', 'losses', 'shared', 'vanished', 'beside'}

-- A job with a death on its account that no checkpoint has wiped out runs apart. The first lease end that nobody saw
-- is most likely a host's, not the job's; the first death beside a likelier cause is not its own either.
local function is_suspect(j)
  return int(j.losses) > 0 or int(j.shared) > 0 or int(j.vanished) > 1 or int(j.beside) > 1
end

local declared, learnt -- task -> lane, and task -> true; read when a job is first routed

local function read_routes()
  declared, learnt = {}, {}
  if not apart then return end
  local flat = call('HGETALL', key('lanes'))
  for i = 1, #flat, 2 do declared[flat[i]] = flat[i + 1] end
  for _, task in ipairs(call('ZRANGEBYSCORE', key('long'), '(' .. whole(steady), '+inf')) do learnt[task] = true end
end

-- Of a job that is no suspect: its own word, then what the workers declare of its task, then what was learnt.
local function kind_of(j)
  if j.lane == 'long' or j.lane == 'solo' then return j.lane end
  if not declared then read_routes() end
  return declared[j.task] or learnt[j.task] and 'long' or 'pool'
end

-- Of runs that are named by tasks and numbers: how many are of tasks that are known as long.
local function long_ones(tasks)
  local sum = 0
  for task, count in pairs(tasks) do
    if kind_of({task = task}) == 'long' then sum = sum + int(count) end
  end
  return sum
end

-- The lane of a job; side `r`: in front, it has been running; `m`: behind.
local function lane_for(j, side)
  if is_suspect(j) then return side == 'r' and 'sus:r' or 'sus' end
  local priority, kind = int(j.priority, 5), kind_of(j)
  local lane = (priority <= 0 and '0:' or priority <= 5 and '5:' or '9:') .. side
  return kind == 'pool' and lane or kind .. ':' .. lane
end

-- Make a job ready; `fields` is what else its hash gets in the same command.
local function put(j, side, fields)
  local lane = lane_for(j, side)
  if string.find(lane, '^[ls]o') then set_apart() end
  local entry = call('XADD', key('s:' .. lane), '*', 'id', j.id, 'at', steady)
  call('HSET', key('j:' .. j.id), unpack(add(fields, 'state', 'ready', '_entry', entry, '_lane', lane)))
  woken = woken + 1
  return lane
end

-- Whether a job's hash names this entry. Two streams may well have entries of the same id.
local function names_back(j, lane, entry) return j._entry == entry and j._lane == lane end

-- Take a job that waits out of the place where it waits.
local function withdraw(j)
  if j._entry then return drop(j._lane, j._entry) end
  if j._lane then call('ZREM', key(j._lane), j.id) end
end

-- Make it wait for a time on the clock that never goes back.
local function schedule(j, delay, fields)
  add(fields, 'state', 'scheduled', 'due', now + delay, '_lane', 'soon')
  call('HSET', key('j:' .. j.id), unpack(fields))
  call('ZADD', key('soon'), steady + delay, j.id)
  if delay <= 1000 then woken = woken + 1 end -- idle workers sleep up to a second: let one learn the new time
end

local function group_of(lane)
  if call('XLEN', key('s:' .. lane)) == 0 then return nil end
  for _, row in ipairs(call('XINFO', 'GROUPS', key('s:' .. lane))) do
    local found = {}
    for i = 1, #row, 2 do found[row[i]] = row[i + 1] end
    if found.name == GROUP then return found end
  end
  return nil
end

-- How many entries of a lane nobody has read.
local function waiting(lane)
  local length = call('XLEN', key('s:' .. lane))
  if length == 0 then return 0 end
  local group = group_of(lane)
  return math.max(0, length - (group and group.pending or 0))
end

local function waiting_in(lanes_of_one)
  local sum = 0
  for _, lane in ipairs(lanes_of_one) do sum = sum + waiting(lane) end
  return sum
end

local function suspects_waiting() return waiting_in(SUSPECTS) end

local function waiting_apart(lanes_of_one) return apart and waiting_in(lanes_of_one) or 0 end

-- Read new entries in a worker's name. The group is made when its stream is first read, and again after somebody
-- destroyed it: then entries come twice, and the job's hash says which ones still count.
local function read(lane, count, worker)
  local stream = key('s:' .. lane)
  if call('XLEN', stream) == 0 then return {} end
  local command = {'XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', count, 'STREAMS', stream, '>'}
  local got = redis.pcall(unpack(command))
  if got and got.err then
    if not string.find(got.err, 'NOGROUP', 1, true) then error(got.err, 0) end
    call('XGROUP', 'CREATE', stream, GROUP, '0')
    got = call(unpack(command))
  end
  return got and got[1][2] or {}
end
