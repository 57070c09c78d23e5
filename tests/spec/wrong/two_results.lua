local m = require "moec"
local function halves(x)
  return m.concat(x, m.sum(m.split(x, 2)))
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { halves } }
