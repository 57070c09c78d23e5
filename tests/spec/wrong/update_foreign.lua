local m = require "moec"
local function f(x)
  local mean = m.state("mean", { 512 })
  local now = m.mean(x, "microbatch")
  m.update(mean, now, function(old) return 0.9 * old + 0.1 * now end)
  return x
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
