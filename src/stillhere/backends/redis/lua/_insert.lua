-- A new job, from our own producers or from the inbox.

local live_workers
local known_tasks = {}

-- False: workers are there, and none of them can run the task.
local function is_known(task)
  if known_tasks[task] == nil then
    live_workers = live_workers or call('ZCOUNT', key('w'), 0, '+inf')
    known_tasks[task] = live_workers == 0 or call('HEXISTS', key('known'), task) == 1
  end
  return known_tasks[task]
end

-- Who stands in the way of a unique key, after making way where that was asked for; nil: nobody.
local function obstacle(r, unique)
  local holder, till = holder_of(unique)
  if not holder then return nil end
  local other = fetch(holder, RUN)
  if r.on_conflict == 'replace' and (other.state == 'ready' or other.state == 'scheduled') then
    withdraw(other)
    call_off(other, 'replaced', {})
    return nil
  end
  if LIVE[other.state] or (other.state and till > now) then return other end
  return nil
end

local function insert(r, more_fields)
  local record = key('j:' .. r.id)
  local there = call('HGET', record, 'state')
  if there then
    return {id = r.id, created = false, state = there, conflict = 'id', known = is_known(r.task)}
  end
  local fields = add(more_fields or {}, 'v', '1', 'id', r.id, 'task', r.task, 'queue', queue,
    'priority', r.priority or 5, 'args', r.args, 'created', now)
  if r.unique then
    local unique = unique_key(r.task, r.unique)
    local other = obstacle(r, unique)
    if other then
      return {id = other.id, created = false, state = other.state, conflict = 'unique', known = is_known(r.task)}
    end
    local till = r.unique_for_ms and whole(now + r.unique_for_ms) or ''
    call('SET', unique, till .. ' ' .. r.id)
    add(fields, 'unique', r.unique)
    if r.unique_for_ms then add(fields, 'unique_until', till) end
  end
  for _, name in ipairs({'max_attempts', 'max_losses', 'timeout_ms', 'stall_ms', 'retention_ms', 'lane'}) do
    if r[name] then add(fields, name, r[name]) end
  end
  if r.headers and next(r.headers) then
    add(fields, 'headers', json(r.headers))
  end
  local state = 'scheduled'
  if r.due then add(fields, 'due', r.due) end
  if r.due and r.due > now then
    call('HSET', record, unpack(add(fields, 'state', state, '_lane', 'eta')))
    call('ZADD', key('eta'), r.due, r.id)
    if r.due - now <= 1000 then woken = woken + 1 end
  elseif r.delay_ms and r.delay_ms > 0 then
    schedule(r, r.delay_ms, fields)
  else
    state = 'ready'
    put(r, 'm', fields)
  end
  return {id = r.id, created = true, state = state, conflict = '', known = is_known(r.task)}
end
