-- How a job ends, and how a run ends that is not the job's end.

local KNOWN_MS = 600000 -- a finished id stays known for at least so long
local DEFAULT_KEEP_MS = 3600000
local DEAD_KEEP_MS = 2592000000
local LIVE = {scheduled = true, ready = true, running = true}

-- What these functions need to have been read of a job.
local RUN = {
  'state', 'token', 'worker', 'task', 'started', 'runs', 'unique', 'unique_until', 'retention_ms', 'priority', 'losses',
  'shared', 'beside', 'vanished', 'deaths', 'interruptions', 'max_losses', 'lane', '_cn', '_entry', '_lane', '_cancel',
}

local function unique_key(task, text) return key('u:' .. task .. ':' .. text) end

-- The job that a unique key names, and until when it does so past that job's end.
local function holder_of(unique)
  local value = call('GET', unique)
  if not value then return nil, 0 end
  local till, id = string.match(value, '^(%d*) (.*)$')
  return id, int(till)
end

local function json(value) return (string.gsub(cjson.encode(value), '\\/', '/')) end

local function error_text(kind, message, exit, traceback)
  return string.format('{"type":%s,"message":%s,"traceback":%s,"exit":%s}', json(kind), json(message),
    json(traceback or ''), json(exit))
end

-- A run that was not the job's last in one line, behind the lines of those before it; the newest 50 stay. The last one
-- is the record itself: worker, token, started, ended, state. `exit`: why its worker died, if that ended it.
local function ran(j, how, till, exit)
  local line = string.format('{"worker":%s,"token":%s,"start":%s,"end":%s,"how":"%s"%s}',
    json(j.worker), j.token, j.started or till, whole(till), how, exit and ',"exit":' .. json(exit) or '')
  if not j.runs then return line end
  local _, breaks = string.gsub(j.runs, '\n', '')
  local earlier = breaks < 49 and j.runs or string.gsub(j.runs, '^[^\n]*\n', '', 1)
  return earlier .. '\n' .. line
end

-- End a job for good; `reason` replaces the one it waited with. Its unique key goes too, unless it was asked to stay
-- longer or belongs to another job by now.
local function finish(j, state, reason, fields, keep)
  local record = key('j:' .. j.id)
  add(fields, 'state', state, 'ended', now)
  if reason and reason ~= '' then add(fields, 'reason', reason) end
  call('HSET', record, unpack(fields))
  local stale = {'_cn', '_entry', '_lane'}
  if j._cancel then add(stale, '_cancel') end
  if keep == 0 then add(stale, 'args', 'result', 'checkpoint', 'headers', 'progress') end
  call('HDEL', record, unpack(stale))
  keep = math.max(keep, KNOWN_MS)
  if j.unique then
    local more = fetch(j.id, {'task', 'unique_until'})
    local unique = unique_key(more.task, j.unique)
    if holder_of(unique) == j.id then
      local left = int(more.unique_until) - now
      if left > 0 then
        keep = math.max(keep, left)
        call('PEXPIRE', unique, left)
      else
        call('DEL', unique)
      end
    end
  end
  call('PEXPIRE', record, keep)
  if state == 'dead' then call('ZADD', key('dead'), now, j.id) else add(ended, now + keep, j.id) end
end

local function bury(j, reason, fields) return finish(j, 'dead', reason, fields, DEAD_KEEP_MS) end

-- Call off a job that was to go on.
local function call_off(j, reason, fields)
  return finish(j, 'cancelled', reason, fields, int(j.retention_ms, DEFAULT_KEEP_MS))
end

-- A run is over and the job is not: ready again, or cancelled if that was asked for meanwhile. Returns the lane if any.
-- Without `how` it never was a run: nobody had seen the grant.
local function give_back(j, side, how, fields, exit)
  drop(j._lane, j._entry)
  if j._cancel then
    call_off(j, j._cancel, fields)
    return nil
  end
  if how then add(fields, 'runs', ran(j, how, now, exit)) end
  local lane = put(j, side, fields)
  call('HDEL', key('j:' .. j.id), 'worker', '_cn')
  return lane
end

-- Take back what a worker was granted under numbers that nobody has answered: no handler can have seen it.
local function take_back(me)
  local taken = {}
  if me.cn <= me.conf then return taken end
  for id in string.gmatch(me.last, '%S+') do
    local j = fetch(id, RUN)
    if j.state == 'running' and j.worker == me.id and int(j._cn) > me.conf then
      if give_back(j, 'r', nil, {}) then add(taken, id) end
      let_go[me.id] = add(let_go[me.id] or {}, id)
    end
  end
  return taken
end
