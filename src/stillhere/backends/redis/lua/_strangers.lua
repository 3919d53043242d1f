-- Consumers of our group that are no workers: a foreign tool made them, or one that was removed was made again.

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
