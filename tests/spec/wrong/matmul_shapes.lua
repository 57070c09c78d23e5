local m = require "moec"
local function f(x)
  local w = m.param("w", { 256, 512 })
  return m.matmul(x, w)
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
