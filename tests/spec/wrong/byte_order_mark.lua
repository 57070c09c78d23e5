return 1 .. nil
