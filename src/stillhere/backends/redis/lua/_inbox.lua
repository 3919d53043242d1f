-- The door for producers in other languages, and what to do with entries that are no jobs: a dead letter each.

-- Whether a text is UTF-8 (all replies are): long sequences are blanked first, then what is left over is wrong.
local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then return true end
  local never = {'\237[\160-\191]', '\224[\128-\159]', '\240[\128-\143]', '\244[\144-\191]', '[\192\193\245-\255]'}
  for _, wrong in ipairs(never) do
    if string.find(text, wrong) then return false end
  end
  local tail = '[\128-\191]'
  local rest = string.gsub(text, '[\240-\244]' .. tail .. tail .. tail, ' ')
  rest = string.gsub(rest, '[\224-\239]' .. tail .. tail, ' ')
  rest = string.gsub(rest, '[\194-\223]' .. tail, ' ')
  return not string.find(rest, '[\128-\255]')
end

local function is_id(text) return text and #text <= 128 and string.find(text, '^[%w._:-]+$') ~= nil end

local function is_object(text)
  if not string.find(text, '^%s*{') then return false end
  local read, value = pcall(cjson.decode, text)
  return read and type(value) == 'table'
end

local function by_name(flat)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

local function named_job(fields)
  local id = fields[1] == 'id' and fields[2] or by_name(fields).id -- ours come first
  return is_id(id) and id or nil
end

-- Whether a hash that an entry names is a record that a worker could be given: other programs may have written it.
local NUMBERS = {
  'v', 'priority', 'created', 'failures', 'losses', 'interruptions', 'max_attempts', 'timeout_ms', 'stall_ms',
  'retention_ms',
}

local function is_job(j)
  for _, name in ipairs(NUMBERS) do
    local value = tonumber(j[name] or '0')
    if not value or value ~= math.floor(value) or math.abs(value) > 9e15 then return false end
  end
  return j.task and j.args and string.find(j.args, '^%s*{') ~= nil
end

local function undecodable(why) return error_text('UndecodableRecord', why, '') end

-- Keep what was found as a dead letter, under an id made of the entry's when it has no good one of its own.
local function reject(id, found, why)
  local shown = {}
  for name, value in pairs(found) do
    if is_utf8(name) and is_utf8(value) then shown[name] = string.sub(value, 1, 1000) end
  end
  local task = found.task and is_utf8(found.task) and #found.task > 0 and string.sub(found.task, 1, 200) or '?'
  finish({id = id}, 'dead', 'undecodable', {
    'v', '1', 'id', id, 'task', task, 'queue', queue, 'created', now, 'error', undecodable(why),
    'args', json(shown),
  }, DEAD_KEEP_MS)
  return id
end

local function reject_entry(entry, fields)
  return reject('entry-' .. entry, by_name(fields), 'an entry of a lane that names no job')
end

local function reject_job(j)
  bury(j, 'undecodable', {'error', undecodable('a record without a task, or whose args are not a JSON object')})
end

local function number_in(found, name, highest)
  if found[name] == nil then return true end
  local value = tonumber(found[name])
  if not value or value ~= math.floor(value) or value < 0 or value > highest then return false end
  found[name] = value
  return true
end

local function headers_in(found)
  if found.headers == nil then return true end
  if #found.headers > 4096 or not is_object(found.headers) then return false end
  found.headers = cjson.decode(found.headers)
  for name, value in pairs(found.headers) do
    if type(name) ~= 'string' or type(value) ~= 'string' then return false end
  end
  return true
end

-- What is wrong with an entry of the inbox; nil when nothing is (its numbers and headers are then read).
local function fault_of(found)
  local highest_of = {
    priority = 9, max_attempts = 1e9, max_losses = 1e9, due = 9e15,
    delay_ms = 9e15, timeout_ms = 9e15, stall_ms = 9e15, retention_ms = 9e15, unique_for_ms = 9e15,
  }
  for name, value in pairs(found) do
    if not (is_utf8(name) and is_utf8(value)) then return 'a field that is not UTF-8' end
  end
  if not found.task or found.task == '' or #found.task > 200 then return 'no task, or a name longer than 200' end
  if string.find(found.task, '[%s%c:{}]') then return 'task: spaces, colons and braces are not part of a name' end
  if found.id and not is_id(found.id) then return 'id: 1 to 128 of A-Z a-z 0-9 . _ : -' end
  if not is_object(found.args or '{}') then return 'args: not a JSON object' end
  if not headers_in(found) then return 'headers: not a JSON object of text to text, or over 4 kB' end
  for name, highest in pairs(highest_of) do
    if not number_in(found, name, highest) then return name .. ': not a whole number from 0 to ' .. whole(highest) end
  end
  if found.lane and found.lane ~= 'long' and found.lane ~= 'solo' then return 'lane: long or solo' end
  if found.unique and (found.unique == '' or #found.unique > 1000) then return 'unique: empty, or longer than 1000' end
  return nil
end

-- Fields that this version does not know are kept, as in every record; those that only the store writes are not taken.
local function strange_fields(found)
  local ours = {
    'v', 'id', 'task', 'queue', 'priority', 'args', 'created', 'due', 'started', 'ended', 'failures', 'losses',
    'shared', 'beside', 'vanished', 'deaths', 'interruptions', 'max_attempts', 'max_losses', 'timeout_ms', 'stall_ms',
    'retention_ms', 'unique', 'unique_until', 'headers', 'lane', 'state', 'reason', 'token', 'worker', 'progress', 'checkpoint', 'result', 'error', 'runs',
    'delay_ms', 'unique_for_ms', 'on_conflict',
  }
  local kept, is_ours = {}, {}
  for _, name in ipairs(ours) do is_ours[name] = true end
  for name, value in pairs(found) do
    if not is_ours[name] and string.sub(name, 1, 1) ~= '_' then add(kept, name, value) end
  end
  return kept
end

-- Take in what came through the inbox; a bad entry becomes a dead letter and stops nobody.
local function take_in(dropped)
  if call('XLEN', key('inbox')) == 0 then return end
  local taken = {}
  for _, entry in ipairs(call('XRANGE', key('inbox'), '-', '+', 'COUNT', 100)) do
    local found = by_name(entry[2])
    local fault = fault_of(found)
    if fault then
      local id = is_id(found.id) and call('EXISTS', key('j:' .. found.id)) == 0 and found.id or entry[1]
      add(dropped, reject(id, by_name(entry[2]), fault))
    else
      found.id = found.id or entry[1]
      found.args = found.args or '{}'
      insert(found, strange_fields(found))
    end
    add(taken, entry[1])
  end
  call('XDEL', key('inbox'), unpack(taken))
end
