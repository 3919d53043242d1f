-- Know a task as long for a day from now. A late copy adds at most that day, and shortens nothing.
--
-- mode: write
-- args: task
-- reply: nothing
-- guarantees: G12

local KNOWN_LONG_MS = 86400000

call('ZREMRANGEBYSCORE', key('long'), '-inf', steady)
call('ZADD', key('long'), 'GT', steady + KNOWN_LONG_MS, task)
set_apart()
return nil
