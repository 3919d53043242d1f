-- Consumers of our group that are no workers: a foreign tool made them, or one that was removed was made again.

-- The note that long or solo jobs were ever here stands in a hash that somebody may delete: then nobody would look for
-- them any more.
local function mend_note()
  if apart then return end
  local keys = {key('lanes'), key('long')}
  for _, lane in ipairs(LONG) do add(keys, key('s:' .. lane)) end
  for _, lane in ipairs(SOLO) do add(keys, key('s:' .. lane)) end
  if call('EXISTS', unpack(keys)) > 0 then set_apart() end
end

local function mend_strangers(limit)
  for _, lane in ipairs(ALL_LANES) do
    if group_of(lane) then
      for _, row in ipairs(call('XINFO', 'CONSUMERS', key('s:' .. lane), GROUP)) do
        local name, pending = row[2], row[4]
        if not call('ZSCORE', key('w'), name) then
          if pending == 0 then
            call('XGROUP', 'DELCONSUMER', key('s:' .. lane), GROUP, name)
          else
            mend_orphans(name, limit)
          end
        end
      end
    end
  end
end
