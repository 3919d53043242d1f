-- Questions about jobs that run, for the supervisors of the queue: a hash, id -> "when worker job".
--
-- The server forgets all of them a minute after the newest; each by itself is dropped when somebody looks at them.

local ASK_MS = 60000
local MOST_QUESTIONS = 100 -- without an answer; one more makes it forget the oldest

-- Those that wait for an answer, the oldest first.
local function questions()
  local flat = call('HGETALL', key('asks'))
  local found, old = {}, {}
  for i = 1, #flat, 2 do
    local at, asked_worker, asked_job = string.match(flat[i + 1], '^(%d+) (%S*) (.*)$')
    if at and tonumber(at) > steady - ASK_MS then
      found[#found + 1] = {id = flat[i], at = tonumber(at), worker = asked_worker, job = asked_job}
    else
      add(old, flat[i])
    end
  end
  if #old > 0 then call('HDEL', key('asks'), unpack(old)) end
  table.sort(found, function(a, b) return a.at < b.at or a.at == b.at and a.id < b.id end)
  return found
end
