#!/usr/bin/env -S moec check "
local m = require "moec"
return m.model { name = "a", voca = 32, width = 64, sequence = 16,
  layers = {} }
