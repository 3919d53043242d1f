-- Entries in a consumer's list that no holding stands for: read in its name by a foreign tool, or left by a script that
-- failed half-way. A consumer is never removed over them: its entries would be in nobody's list, and never read again.

local function mend_orphan(lane, entry)
  local found = call('XRANGE', key('s:' .. lane), entry, entry)[1]
  local id = found and found[2][2]
  local j = id and fetch(id, RUN) or {}
  local counts = names_back(j, lane, entry)
  if counts and j.state == 'running' and call('HEXISTS', key('h:' .. j.worker), id) == 1 then
    call('XCLAIM', key('s:' .. lane), GROUP, j.worker, 0, entry, 'JUSTID')
    return
  end
  drop(lane, entry)
  if counts and j.state == 'ready' then put(j, 'r', {}) end
end

-- Put right at most `limit` entries a lane that are pending for a consumer without holdings; returns how many it met.
local function mend_orphans(consumer, limit)
  local met = 0
  remove_dropped_entries() -- those are on their way out already
  for _, lane in ipairs(ALL_LANES) do
    if call('EXISTS', key('s:' .. lane)) == 1 then
      local pending = redis.pcall('XPENDING', key('s:' .. lane), GROUP, '-', '+', limit, consumer)
      for _, row in ipairs(pending.err and {} or pending) do
        mend_orphan(lane, row[1])
        met = met + 1
      end
    end
  end
  return met
end
