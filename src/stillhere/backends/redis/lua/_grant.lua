-- The parts of a claim: bring jobs to the lanes, take them from the lanes, write the grant.

local patience = 100 -- so many entries that it cannot take are looked at in one call
local moved = 0 -- jobs that were met where they do not belong

local function grant_of(j)
  return {
    id = j.id, queue = queue, token = tonumber(j.token), task = j.task, args = j.args, v = int(j.v, 1),
    priority = int(j.priority, 5), created = int(j.created), failures = int(j.failures), losses = int(j.losses),
    interruptions = int(j.interruptions), max_attempts = tonumber(j.max_attempts or nil),
    timeout_ms = tonumber(j.timeout_ms or nil), stall_ms = tonumber(j.stall_ms or nil),
    retention_ms = tonumber(j.retention_ms or nil), checkpoint = j.checkpoint,
    headers = headers_of(j.headers),
    suspect = string.sub(j._lane, 1, 3) == 'sus',
    lane = string.match(j._lane, '^(long):') or string.match(j._lane, '^(solo):') or 'pool',
  }
end

-- Jobs whose time has come stand behind those that are ready already.
local function promote(waiting_room, clock)
  local due = call('ZRANGEBYSCORE', key(waiting_room), '-inf', clock, 'LIMIT', 0, 100)
  for _, id in ipairs(due) do
    local j = fetch(id, add({'state'}, unpack(ROUTED)))
    if j.state == 'scheduled' then put(j, 'm', {}) end
  end
  if #due > 0 then call('ZREM', key(waiting_room), unpack(due)) end
end

local function next_due()
  local soon = call('ZRANGE', key('soon'), 0, 0, 'WITHSCORES')
  local eta = call('ZRANGE', key('eta'), 0, 0, 'WITHSCORES')
  local wait = math.min(soon[2] and soon[2] - steady or math.huge, eta[2] and eta[2] - now or math.huge)
  return wait < math.huge and math.max(0, wait) or nil
end

local function any_waiting(lanes_of_one)
  for _, lane in ipairs(lanes_of_one) do
    if waiting(lane) > 0 then return true end
  end
  return false
end

-- An entry whose job is running: the group was made anew, and the entry belongs back into its holder's list. If that
-- holder's record was deleted, nobody would ever end it: the job is ready again.
local function restore(lane, entry, j)
  if call('HEXISTS', key('h:' .. j.worker), j.id) == 1 and call('EXISTS', key('w:' .. j.worker)) == 1 then
    call('XCLAIM', key('s:' .. lane), GROUP, j.worker, 0, entry, 'JUSTID')
  else
    give_back(j, 'r', nil, {})
  end
end

local function write_grant(j)
  local token = math.max(int(j.token) + 1, micros)
  j.token = whole(token)
  call('HSET', key('j:' .. j.id), 'state', 'running', 'worker', worker, 'token', j.token, 'started', now, '_cn', n)
  if j.reason then call('HDEL', key('j:' .. j.id), 'reason') end
  return grant_of(j)
end

-- One entry of a lane: a grant, or nil when it is not (any more) a job that this worker can start.
local function deal_one(lane, entry, fields, dropped)
  local id = named_job(fields)
  local j = id and fetch_all(id) or {}
  if not j.state then
    drop(lane, entry)
    add(dropped, id or reject_entry(entry, fields))
  elseif not names_back(j, lane, entry) or (j.state ~= 'ready' and j.state ~= 'running') then
    drop(lane, entry)
  elseif j.state == 'running' then
    restore(lane, entry, j)
  elseif not is_job(j) then
    drop(lane, entry)
    reject_job(j)
    add(dropped, id)
  else
    local need = missing_need(j)
    local side = string.sub(lane, -1) == 'r' and 'r' or 'm'
    if not need and lane_for(j, side) == lane then return write_grant(j) end
    drop(lane, entry)
    if need then
      park(j, need)
    else -- what is said of its task has changed since it came here
      put(j, side, {})
      moved = moved + 1
    end
  end
  return nil
end

-- The least priority first; within each what was running before.
local function upward(lanes_of_one)
  local turned = {}
  for i = #lanes_of_one - 1, 1, -2 do add(turned, lanes_of_one[i], lanes_of_one[i + 1]) end
  return turned
end

-- Append up to `slots` grants from these lanes, in order; one turn in eight begins with what has the least priority.
-- A claim that asks nothing of these lanes is no turn: a worker may well ask for its slots each second time only. What it cannot take costs no slot, but only so many are looked at.
local function deal(lanes_of_one, slots, turn, jobs, dropped)
  local in_order = lanes_of_one ~= SUSPECTS and turn % 8 == 0 and upward(lanes_of_one) or lanes_of_one
  for _, lane in ipairs(in_order) do
    while #jobs < slots and patience > 0 do
      local wanted = slots - #jobs
      local entries = read(lane, wanted, worker)
      for _, entry in ipairs(entries) do
        local granted = deal_one(lane, entry[1], entry[2], dropped)
        if granted then add(jobs, granted) else patience = patience - 1 end
      end
      if #entries < wanted then break end
    end
  end
end

-- Whether work is left in these lanes for which there was no slot, or no patience.
local function is_short(lanes_of_one, slots, taken)
  return slots > 0 and (#taken == slots or patience <= 0) and any_waiting(lanes_of_one)
end
