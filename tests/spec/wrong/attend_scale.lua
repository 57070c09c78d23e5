local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = { function(x)
    local q = m.linear("q", x, { 1, 8 })
    return x + m.linear("o", m.attend(q, q, q, { scale = -1 }), 64, { over = 2 })
  end } }
