local m = require "moec"
local pair = m.shared("pair", function(x)
  return m.linear("a", x, x:size()) + m.linear("a", m.relu(x), x:size())
end)
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { pair, pair } }
