local m = require "moec"
local function ffn(x)
  local h = m.linear("in", x, 1024)
  local gate = m.linear("gate", x, 1042)
  return m.linear("out", h * m.sigmoid(gate), x:size())
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { m.block { ffn = ffn } } }
