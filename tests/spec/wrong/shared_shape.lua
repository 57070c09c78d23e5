local m = require "moec"
local odd = m.shared("odd", function(x, n)
  return x + m.linear("b", m.linear("a", x, n), x:size())
end)
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = {
  function(x) return odd(x, 64) end,
  function(x)
    return odd(x, 128)
  end } }
