function thread_init()
    connection = sysbench.sql.driver():connect()
end
function event()
    connection:query("UPDATE sbtest1 SET k = k + 1 WHERE id = " .. sysbench.rand.uniform(1, 10))
end
function thread_done()
    connection:disconnect()
end
