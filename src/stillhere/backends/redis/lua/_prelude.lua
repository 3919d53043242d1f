-- What every script begins with: how it names keys, what time it is, and the ticking of the lease clock.
--
-- The loader puts the named inputs of the script before this text (`MODE`, `NOW` and the words after `args:`), the
-- library files after `uses:` behind it, then the script's own text as a function, then `_epilogue.lua`. KEYS[1] is the
-- stem of all keys of one queue, `<namespace>:{<queue>}`; the braces keep them in one hash slot.
--
-- MODE `write`: the first write is a DEL of nothing, which a server that is out of memory still allows; after one write
-- it lets a script finish. So leases, ends and hand-backs go on when the memory is full. MODE `admit` does without, so
-- that a new job is refused before anything is written. MODE `read` writes nothing at all.
--
-- A script is atomic: other clients see all of its writes or none, and a crash of the server keeps all or none of them.

pcall(function() redis.replicate_commands() end) -- 6.2: send effects to replicas, since TIME is read before writes

local call = redis.call
local base = KEYS[1]
local GROUP = 'stillhere'

local function key(name) return base .. ':' .. name end

local function int(text, default) return tonumber(text) or default or 0 end

-- At most so many bytes of a text, and no half characters.
local function cut(text, most)
  if #text <= most then return text end
  local head = string.sub(text, 1, most)
  local is_inside = string.find(string.sub(text, most + 1, most + 1), '[\128-\191]')
  return is_inside and (string.gsub(head, '[\192-\255][\128-\191]*$', '')) or head
end

local function whole(number) return string.format('%.0f', number) end -- `..` would round a token to 14 digits

-- Append what is given, up to the first nil.
local function add(list, ...)
  local more, size = {...}, #list
  for i = 1, #more do list[size + i] = more[i] end
  return list
end

if MODE == 'write' then call('DEL', key('-')) end

local micros -- the store's time, or the test's
if NOW then
  micros = NOW * 1000
else
  local time = call('TIME')
  micros = time[1] * 1000000 + time[2]
end
local now = math.floor(micros / 1000)

-- The lease clock runs only while somebody calls: at most `gap` for each silence, never backwards. `steady` is the wall
-- clock plus all its backward steps: relative delays are counted on it. `apart` stands with them because they are read
-- anyway: as long as no job and no task of the queue was ever long or solo, nobody looks for their lanes.
local clk = call('HMGET', key('clk'), 'l', 't', 'back', 'gap', 'apart')
local lease, back_steps, gap = int(clk[1]), int(clk[3]), int(clk[4], 2000)
if clk[2] then
  local step = now - clk[2]
  if step > 0 then lease = lease + math.min(step, gap) else back_steps = back_steps - step end
end
local steady = now + back_steps
local apart = clk[5] and true or false
if MODE ~= 'read' then call('HSET', key('clk'), 'l', lease, 't', now, 'back', back_steps) end

-- What a script gathers and `_epilogue.lua` writes in one command each.
local woken = 0 -- jobs that became ready
local dropped_entries = {} -- lane -> entry ids
local let_go = {} -- worker -> job ids
local ended = {} -- for the index of finished jobs: score, id, score, id ...

local function set_apart()
  if not apart then call('HSET', key('clk'), 'apart', 1) end
  apart = true
end

-- The named fields of one job, and its id; a field that is not there is nil.
local function fetch(id, names)
  local values = call('HMGET', key('j:' .. id), unpack(names))
  local found = {id = id}
  for i = 1, #names do found[names[i]] = values[i] or nil end
  return found
end

-- All fields of one job.
local function fetch_all(id)
  local flat = call('HGETALL', key('j:' .. id))
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  found.id = id
  return found
end

-- The named fields of a worker's record; `lease_ms` is there as long as the record is.
local function worker_record(id, ...)
  local values = call('HMGET', key('w:' .. id), 'lease_ms', 'gone', 'cn', 'conf', 'last', 'granted', ...)
  local found = {
    id = id, lease_ms = tonumber(values[1] or nil), gone = values[2] or nil,
    cn = int(values[3]), conf = int(values[4]), last = values[5] or '', granted = int(values[6]),
  }
  for i, name in ipairs({...}) do found[name] = values[6 + i] or nil end
  return found
end

local function drop(lane, entry)
  if lane and entry then dropped_entries[lane] = add(dropped_entries[lane] or {}, entry) end
end

local function remove_dropped_entries()
  for lane, entries in pairs(dropped_entries) do
    call('XACK', key('s:' .. lane), GROUP, unpack(entries))
    call('XDEL', key('s:' .. lane), unpack(entries))
  end
  dropped_entries = {}
end
