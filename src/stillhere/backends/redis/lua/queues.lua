-- The names of all queues of a namespace. KEYS[1] is the set itself: a hint beside the queues, kept by the clients.
--
-- mode: read
-- reply: names, sorted
-- guarantees: G11

local names = call('SMEMBERS', base)
table.sort(names)
return names
