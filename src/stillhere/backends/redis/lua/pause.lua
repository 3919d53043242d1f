-- Stop or resume the grants of a queue; what runs goes on.
--
-- mode: write
-- args: paused:flag
-- reply: whether it changed something
-- guarantees: G2

local was = call('EXISTS', key('paused')) == 1
if was == paused then return false end
if paused then
  call('SET', key('paused'), whole(now))
else
  call('DEL', key('paused'))
  woken = 16
end
return true
