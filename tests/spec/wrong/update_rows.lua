local m = require "moec"
local function f(x)
  local load = m.state("load", { 512 })
  m.update(load, x, function(old, total) return old + total end)
  return x
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
