local m = require "moec"
return m.model { name = "a[2J, vocab = 32 }
