local m = require "moec"
local n = 16
while n ~= 1000 do n = n + 16 end        -- never exactly 1000
return m.model { name = "a", vocab = n, width = 512, sequence = 128, layers = {} }
