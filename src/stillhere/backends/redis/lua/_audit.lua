-- The walks of the audit: first every index notes which jobs it names, then every record is asked if that is right.

local complaints = {}
local named = {} -- job -> the places that name it as it is now

local function complain(id, kind, detail) add(complaints, {job = id, kind = kind, detail = detail}) end

local function note(id, place) named[id] = add(named[id] or {}, place) end

local function keys_like(pattern)
  local found, cursor = {}, '0'
  local stem = string.gsub(base, '[%*%?%[%]%^\\]', '\\%0')
  repeat
    local step = call('SCAN', cursor, 'MATCH', stem .. ':' .. pattern, 'COUNT', 1000)
    cursor = step[1]
    for _, name in ipairs(step[2]) do found[string.sub(name, #base + 2)] = true end
  until cursor == '0'
  return found
end

local function pending_in(lane)
  local owners, after = {}, '-'
  while true do
    local rows = redis.pcall('XPENDING', key('s:' .. lane), GROUP, after, '+', 1000)
    if rows.err then return owners end
    for _, row in ipairs(rows) do owners[row[1]] = row[2] end
    if #rows < 1000 then return owners end
    after = '(' .. rows[#rows][1]
  end
end

local function is_read(entry, group)
  if not group then return false end
  local ms, seq = string.match(entry, '^(%d+)-(%d+)$')
  local last_ms, last_seq = string.match(group['last-delivered-id'], '^(%d+)-(%d+)$')
  if ms ~= last_ms then return tonumber(ms) < tonumber(last_ms) end
  return tonumber(seq) <= tonumber(last_seq)
end

local function check_entry(lane, entry, id, owner, group)
  local j = fetch(id, {'state', 'worker', '_entry', '_lane'})
  local here = lane .. ' ' .. entry
  if not j.state or not names_back(j, lane, entry) then
    complain(id, 'orphan_entry', 'the entry ' .. here .. ' names a job that does not name it')
  elseif j.state == 'ready' then
    note(id, 'ready')
    if owner then
      complain(id, 'wrong_place', 'ready, yet the entry ' .. here .. ' is pending for ' .. owner)
    elseif is_read(entry, group) then
      complain(id, 'limbo_entry', 'the entry ' .. here .. ' was read, and is in nobody\'s list')
    end
  elseif j.state ~= 'running' then
    complain(id, 'orphan_entry', 'the entry ' .. here .. ' names a job that is ' .. j.state)
  elseif owner ~= j.worker then
    complain(id, 'wrong_place', here .. ' is pending for ' .. (owner or 'nobody') .. ', not for ' .. (j.worker or '?'))
  end
end

local function walk_lanes()
  for _, lane in ipairs(ALL_LANES) do
    if call('EXISTS', key('s:' .. lane)) == 1 then
      local owners, group = pending_in(lane), group_of(lane)
      for _, entry in ipairs(call('XRANGE', key('s:' .. lane), '-', '+')) do
        check_entry(lane, entry[1], entry[2][2], owners[entry[1]], group)
        owners[entry[1]] = nil
      end
      for entry, owner in pairs(owners) do
        complain('?', 'orphan_entry', lane .. ' ' .. entry .. ' was deleted, and is pending for ' .. owner)
      end
    end
  end
end

local function walk_sets()
  local sets = {soon = 'scheduled', eta = 'scheduled', dead = 'dead', done = 'ended'}
  for name in pairs(keys_like('park:*')) do sets[name] = 'ready' end
  for name, place in pairs(sets) do
    for _, id in ipairs(call('ZRANGE', key(name), 0, -1)) do
      local j = fetch(id, {'state', '_lane'})
      local final = place == 'dead' or place == 'ended'
      if j.state and (j._lane == name or final and not LIVE[j.state]) then
        note(id, place)
      elseif not final or j.state and name == 'dead' then -- an ended job's record may go first
        local kind = j.state and 'twice' or 'orphan_entry'
        complain(id, kind, 'listed in ' .. name .. ', but it is ' .. (j.state or 'unknown'))
      end
    end
  end
end

local function walk_holdings()
  for name in pairs(keys_like('h:*')) do
    local worker = string.sub(name, 3)
    local there = call('ZSCORE', key('w'), worker) and call('EXISTS', key('w:' .. worker)) == 1
    for id, grant in pairs(holdings(worker)) do
      local j = fetch(id, {'state', 'worker', 'token'})
      if j.state == 'running' and j.worker == worker and int(j.token) == grant.token then
        note(id, 'running')
        if not there then complain(id, 'no_owner', 'held by ' .. worker .. ', which is not registered') end
      else
        complain(id, 'twice', 'among the holdings of ' .. worker .. ', but it is ' .. (j.state or 'unknown'))
      end
    end
  end
end

local function walk_records()
  for name in pairs(keys_like('j:*')) do
    local id = string.sub(name, 3)
    local j = fetch(id, {'state', 'task', 'unique'})
    local place = LIVE[j.state] and j.state or j.state == 'dead' and 'dead' or 'ended'
    local places = named[id] or {}
    if #places > 1 then
      complain(id, 'twice', table.concat(places, ', '))
    elseif #places == 0 and place ~= 'ended' then -- the list of what ended may forget earlier than the server does
      complain(id, 'nowhere', 'its state is ' .. (j.state or 'missing') .. ', and no place names it')
    elseif places[1] and places[1] ~= place then
      complain(id, 'wrong_place', 'its state is ' .. j.state .. ', its place is ' .. places[1])
    end
    local lasts = call('PTTL', key(name)) == -1
    if LIVE[j.state] and not lasts then complain(id, 'ttl_on_live', 'it would vanish while it is ' .. j.state) end
    if LIVE[j.state] and j.unique and holder_of(unique_key(j.task, j.unique)) ~= id then
      complain(id, 'unique', 'its unique key ' .. j.unique .. ' is not its own')
    end
  end
end

local function walk_unique_keys()
  for name in pairs(keys_like('u:*')) do
    local holder = holder_of(key(name))
    local alive = holder and LIVE[fetch(holder, {'state'}).state]
    if not alive and call('PTTL', key(name)) == -1 then
      complain(holder or '?', 'unique', 'the key ' .. name .. ' is kept for a job that has ended')
    end
  end
end
