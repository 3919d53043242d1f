-- A job's hash as the record that people read. Fields that begin with `_` are the store's own.

local NUMBERS = {
  'v', 'priority', 'created', 'due', 'started', 'ended', 'failures', 'losses', 'shared', 'beside', 'vanished',
  'deaths', 'interruptions', 'max_attempts', 'max_losses', 'timeout_ms', 'stall_ms', 'retention_ms', 'token',
}

-- Headers as text to text; what a foreign hand wrote otherwise is left out. Nil: there are none.
local function headers_of(text)
  if not text then return nil end
  local read, found = pcall(cjson.decode, text)
  local headers = {}
  if read and type(found) == 'table' then
    for name, value in pairs(found) do
      if type(name) == 'string' and type(value) == 'string' then headers[name] = value end
    end
  end
  return next(headers) and headers or nil
end

local function record_of(id)
  local record = fetch_all(id)
  if not record.state then return nil end
  for _, name in ipairs(NUMBERS) do record[name] = tonumber(record[name]) end
  record.queue, record.task = queue, record.task or '?'
  record.headers = headers_of(record.headers)
  if record.lane ~= 'long' and record.lane ~= 'solo' then record.lane = nil end -- a later version's, or a foreign hand's
  record.cancelling = record._cancel ~= nil
  if record.runs then
    local lines = {}
    for line in string.gmatch(record.runs, '[^\n]+') do lines[#lines + 1] = line end
    record.runs = lines
  end
  return record
end
