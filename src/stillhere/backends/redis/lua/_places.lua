-- Where jobs are, as lists that can be read piece by piece: each reader takes where to go on and how many at most, and
-- returns {id, after} pairs and whether there may be more.

local function running_jobs(worker)
  return function(after, count)
    local ids = {}
    for _, name in ipairs(worker ~= '' and {worker} or call('ZRANGE', key('w'), 0, -1)) do
      add(ids, unpack(call('HKEYS', key('h:' .. name))))
    end
    table.sort(ids)
    local page = {}
    for _, id in ipairs(ids) do
      if id > after and #page < count then page[#page + 1] = {id = id, after = id} end
    end
    return page, #page == count
  end
end

-- Entries of jobs that run stand in the stream too; `places_for` asks for state ready, which sorts them out.
local function lane_jobs(lane)
  return function(after, count)
    local page = {}
    local first = after == '' and '-' or '(' .. after
    for _, entry in ipairs(call('XRANGE', key('s:' .. lane), first, '+', 'COUNT', count)) do
      local id = entry[2][2]
      local j = fetch(id, {'state', '_entry', '_lane'})
      page[#page + 1] = {id = j.state == 'ready' and names_back(j, lane, entry[1]) and id or '', after = entry[1]}
    end
    return page, #page == count
  end
end

local function set_jobs(name, newest_first)
  return function(after, count)
    local first = tonumber(after) and tonumber(after) + 1 or 0
    local page = {}
    for i, id in ipairs(call(newest_first and 'ZREVRANGE' or 'ZRANGE', key(name), first, first + count - 1)) do
      page[i] = {id = id, after = tostring(first + i - 1)}
    end
    return page, #page == count
  end
end

local function places_for(state, worker)
  local places = {}
  local function either(wanted) return worker == '' and (state == '' or state == wanted) end
  if state == '' or state == 'running' then add(places, running_jobs(worker)) end
  if either('ready') then
    for _, lane in ipairs(ALL_LANES) do add(places, lane_jobs(lane)) end
    local needs = call('SMEMBERS', key('parks'))
    table.sort(needs)
    for _, need in ipairs(needs) do add(places, set_jobs('park:' .. need)) end
  end
  if either('scheduled') then add(places, set_jobs('soon'), set_jobs('eta')) end
  if either('dead') then add(places, set_jobs('dead', true)) end
  if either('succeeded') or either('cancelled') then add(places, set_jobs('done', true)) end
  return places
end
