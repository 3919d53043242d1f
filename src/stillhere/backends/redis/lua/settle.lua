-- End runs, each under its token: one step with all that follows from it (result, unique key, dead letter, next run).
--
-- Repeated after a lost reply it says `already`; from somebody who no longer holds the job it changes nothing. A lease
-- that is over but that nobody has ended yet still counts: no one else has the job.
--
-- mode: write
-- uses: lanes ends
-- args: worker outcomes:list
-- reply: for each outcome {status, state, outcome}
-- guarantees: G5 G8

local NEEDED = {'state', 'token', 'worker', 'started', 'runs', 'unique', '_entry', '_lane', '_cancel', '_stok'}

local function failures_with_this(j) return int(fetch(j.id, {'failures'}).failures) + 1 end

local function wait_for(j, outcome, reason, fields)
  drop(j._lane, j._entry)
  schedule(j, outcome.delay_ms, add(fields, 'reason', reason, 'runs', ran(j, outcome.kind, now)))
  call('HDEL', key('j:' .. j.id), 'worker', '_cn', '_entry')
  return 'scheduled'
end

local function to_an_end(j, state, outcome, fields, keep)
  drop(j._lane, j._entry)
  finish(j, state, outcome.reason, fields, keep)
  return state
end

-- What each kind does; returns the job's new state.
local KINDS = {
  succeeded = function(j, outcome, fields)
    if outcome.result then add(fields, 'result', outcome.result) end
    return to_an_end(j, 'succeeded', outcome, fields, outcome.retention_ms)
  end,
  cancelled = function(j, outcome, fields) return to_an_end(j, 'cancelled', outcome, fields, outcome.retention_ms) end,
  dead = function(j, outcome, fields)
    return to_an_end(j, 'dead', outcome, add(fields, 'failures', failures_with_this(j)), DEAD_KEEP_MS)
  end,
  retry = function(j, outcome, fields)
    return wait_for(j, outcome, 'retry', add(fields, 'failures', failures_with_this(j)))
  end,
  snooze = function(j, outcome, fields) return wait_for(j, outcome, 'snoozed', fields) end,
  interrupted = function(j, outcome, fields)
    local more = fetch(j.id, add({'interruptions'}, unpack(ROUTED)))
    for name, value in pairs(more) do j[name] = value end
    add(fields, 'interruptions', int(j.interruptions) + 1, 'reason', 'interrupted')
    give_back(j, 'r', 'interrupted', fields)
    return 'ready'
  end,
}

local done = 0
local seen = {}

local function settle_one(outcome)
  local j = fetch(outcome.job, NEEDED)
  if not j.state then return {status = 'unknown'} end
  if j._stok and int(j._stok) == outcome.token then
    return {status = 'already', state = j.state, outcome = fetch(j.id, {'_sout'})._sout}
  end
  if j.state ~= 'running' or int(j.token) ~= outcome.token or j.worker ~= worker then
    return {status = 'stale', state = j.state}
  end
  local kind = outcome.kind
  if j._cancel and kind ~= 'succeeded' then
    kind = 'cancelled'
    outcome = {reason = j._cancel, error = outcome.error, retention_ms = outcome.retention_ms}
  end
  local fields = {'_stok', j.token, '_sout', kind}
  if outcome.error then add(fields, 'error', outcome.error) end
  let_go[worker] = add(let_go[worker] or {}, j.id)
  done = done + 1
  return {status = 'ok', state = KINDS[kind](j, outcome, fields), outcome = kind}
end

local answers = {}
for i, outcome in ipairs(outcomes) do answers[i] = settle_one(outcome) end
if done > 0 then call('HINCRBY', key('n'), 'settled', done) end
return answers
