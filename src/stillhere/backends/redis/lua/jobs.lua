-- List jobs, place by place: what runs, what is ready, what waits for a time, dead letters, what ended.
--
-- `after` is "<place>/<where to go on>". A call looks at so many jobs at most, so a page may be short or empty while
-- there is more. A job that moves between two pages may be seen twice or not at all; `audit` is the consistent look.
--
-- mode: read
-- uses: lanes record places
-- args: state task worker id_tail error_text older_than_ms:int limit:int after
-- reply: {jobs, after}
-- guarantees: G11

local PATIENCE = 500

local function is_wanted(record)
  if state ~= '' and record.state ~= state then return false end
  if task ~= '' and record.task ~= task then return false end
  if worker ~= '' and record.worker ~= worker then return false end
  if id_tail ~= '' and string.sub(record.id, -#id_tail) ~= id_tail then return false end
  if error_text ~= '' and not string.find(record.error or '', error_text, 1, true) then return false end
  if older_than_ms and now - int(record.created) < older_than_ms then return false end
  return true
end

if id_tail ~= '' and after == '' then -- a whole id needs no search
  local record = record_of(id_tail)
  if record then return {jobs = is_wanted(record) and {record} or {}} end
end

local found, looked, places = {}, 0, places_for(state, worker)
local from, where = string.match(after, '^(%d+)/(.*)$')
for number = tonumber(from) or 1, #places do
  repeat
    local ids, go_on = places[number](where or '', 50)
    for _, at in ipairs(ids) do
      local record = record_of(at.id)
      looked, where = looked + 1, at.after
      if record and is_wanted(record) then add(found, record) end
      if #found >= limit or looked >= PATIENCE then return {jobs = found, after = number .. '/' .. where} end
    end
  until not go_on
  where = nil
end
return {jobs = found}
